-- Raises the epoch of a run that may go on, and gives its lease back. ARGV: run, by how much.
local f = redis.call('HMGET', row_of(ARGV[2]), 'status', 'epoch', 'flow', 'group')
if not f[1] or f[1] == 'completed' or f[1] == 'cancelled' then
  return 0
end
redis.call('HSET', row_of(ARGV[2]), 'epoch', string.format('%.0f', tonumber(f[2]) + tonumber(ARGV[3])))
give_back(ARGV[2], f[3], f[4])
reckon(ARGV[2])
announce()
return 1
