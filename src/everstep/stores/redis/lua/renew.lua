-- Prolongs leases; returns the time, and for each a verdict. ARGV: span, then run, epoch, owner of each.
local now, verdicts = clock(), {}
local expires = whole(tonumber(now) + tonumber(ARGV[2]))
for at = 2, #ARGV - 3, 3 do
  local f = redis.call('HMGET', row_of(ARGV[at + 1]), 'epoch', 'owner', 'signal', 'flow', 'group')
  if f[1] ~= ARGV[at + 2] or f[2] ~= ARGV[at + 3] then
    verdicts[#verdicts + 1] = 'fenced'
  elseif f[3] then
    verdicts[#verdicts + 1] = 'signalled'
  else
    redis.call('HSET', row_of(ARGV[at + 1]), 'expires', expires)
    note_lease(ARGV[at + 1], expires, f[4], f[5])
    reckon(ARGV[at + 1])
    verdicts[#verdicts + 1] = 'accepted'
  end
end
return { now, verdicts }
