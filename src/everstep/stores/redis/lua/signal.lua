-- Leaves a signal for an unfinished run; returns whether it did. ARGV: run, signal.
local status = redis.call('HGET', row_of(ARGV[3]), 'status')
if not status or FINAL[status] then
  return 0
end
redis.call('HSET', row_of(ARGV[3]), 'signal', ARGV[4])
reckon(ARGV[3])
announce()
return 1
