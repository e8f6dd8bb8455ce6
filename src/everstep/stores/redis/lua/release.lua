-- Gives a lease back if it is still the newest. ARGV: run, epoch.
local f = redis.call('HMGET', row_of(ARGV[3]), 'epoch', 'owner')
if f[1] == ARGV[4] and f[2] then
  give_back(ARGV[3])
  reckon(ARGV[3])
  announce()
end
