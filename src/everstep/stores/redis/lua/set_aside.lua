-- Marks a damaged run unless it was claimed since, and gives its lease back. ARGV: run, epoch, reason.
local f = redis.call('HMGET', row_of(ARGV[3]), 'epoch', 'status', 'n')
if f[1] ~= ARGV[4] or FINAL[f[2]] then
  return 0
end
redis.call('HSET', row_of(ARGV[3]), 'repair', ARGV[5])
redis.call('ZADD', P .. 'repair', f[3], ARGV[3])
give_back(ARGV[3])
reckon(ARGV[3])
announce()
return 1
