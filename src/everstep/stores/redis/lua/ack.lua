-- Notes when a run's result was first taken. ARGV: run, a row of the audit log.
if redis.call('EXISTS', row_of(ARGV[2])) == 1 and redis.call('HSETNX', row_of(ARGV[2]), 'acked', clock()) == 1 then
  announce()
end
tell(ARGV[3])
