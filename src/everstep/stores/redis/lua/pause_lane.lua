-- Pauses a flow or a group, or lets it go on; returns whether it did. ARGV: flow, group, what is kept of it, or nothing, a
-- row of the audit log.
local name = #ARGV[2] .. ':' .. ARGV[2] .. ARGV[3]
local done = ARGV[4] ~= '' and redis.call('HSETNX', P .. 'pauses', name, ARGV[4])
  or ARGV[4] == '' and redis.call('HDEL', P .. 'pauses', name)
if done == 1 then
  tell(ARGV[5])
  announce()
end
return done
