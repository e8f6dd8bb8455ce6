-- Leaves a signal for an unfinished run; returns whether it did. ARGV: run, signal.
local status = redis.call('HGET', row_of(ARGV[2]), 'status')
if not status or FINAL[status] then
  return 0
end
redis.call('HSET', row_of(ARGV[2]), 'signal', ARGV[3])
reckon(ARGV[2])
announce()
return 1
