-- Gives a lease back if it is still the newest. ARGV: run, epoch.
local f = redis.call('HMGET', row_of(ARGV[2]), 'epoch', 'owner', 'flow', 'group')
if f[1] == ARGV[3] and f[2] then
  give_back(ARGV[2], f[3], f[4])
  reckon(ARGV[2])
  announce()
end
