-- Gives an open wait its answer, once; returns whether this did it, and its row.
-- ARGV: wait, by, answer and hash of the token ('=' before what is given).
local wait_id, done = ARGV[2], 0
local f = redis.call('HMGET', wait_of(wait_id), 'run', 'status', 'token')
if f[2] == 'open' and (ARGV[5] == '' or f[3] and ARGV[5] == '=' .. f[3]) then
  local answer = ARGV[4] ~= '' and string.sub(ARGV[4], 2) or nil
  settle(wait_id, redis.call('HGET', row_of(f[1]), 'status'), clock(), ARGV[3], answer)
  reckon(f[1])
  announce()
  done = 1
end
return { done, redis.call('HGETALL', wait_of(wait_id)) }
