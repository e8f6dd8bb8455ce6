-- Replaces how a notice stands, or removes it, unless it was tried since.
-- ARGV: run, number, tries, round and time of sending as they were, what is kept of it now or '', a row of the audit log.
local run_id, number = ARGV[2], ARGV[3]
local key = P .. 'notice:' .. number
local f = redis.call('HMGET', key, 'run', 'tries', 'round', 'sent_at')
if f[1] ~= run_id or (f[2] or '0') ~= ARGV[4] or (f[3] or '0') ~= ARGV[5] or (f[4] or '') ~= ARGV[6] then
  return 0
end
if ARGV[7] == '' then
  drop_notice(run_id, number)
else
  redis.call('HDEL', key, 'due_at', 'sent_at')
  redis.call('HSET', key, unpack(cmsgpack.unpack(ARGV[7])))
  place_notice(number)
end
tell(ARGV[8])
return 1
