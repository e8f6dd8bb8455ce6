-- Notes when a run's result was first taken. ARGV: run.
if redis.call('EXISTS', row_of(ARGV[2])) == 1 and redis.call('HSETNX', row_of(ARGV[2]), 'acked', clock()) == 1 then
  announce()
end
