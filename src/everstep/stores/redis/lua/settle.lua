-- Gives an open wait its answer, once; returns whether this did it, and its row.
-- As engine.settling says: from its due time on only the clock settles it.
-- ARGV: wait, by, answer and hash of the token ('=' before what is given), when it was given if not now, and
-- details with who gave it ('=' before them); a row of the audit log or ''; the details that it must still have ('='
-- before them).
local wait_id, done = ARGV[2], 0
local f = redis.call('HMGET', wait_of(wait_id), 'run', 'status', 'token', 'due')
local is_same = not ARGV[9] or ARGV[9] == '=' .. (redis.call('HGET', wait_of(wait_id), 'details') or '')
if f[2] == 'open' and is_same and (ARGV[5] == '' or f[3] and ARGV[5] == '=' .. f[3]) then
  local by, answer = ARGV[3], ARGV[4] ~= '' and string.sub(ARGV[4], 2) or nil
  local now = ARGV[6] ~= '' and ARGV[6] or clock()
  if f[4] and tonumber(f[4]) <= tonumber(now) then
    by, answer = 'clock', nil
  end
  settle(wait_id, redis.call('HGET', row_of(f[1]), 'status'), now, by, answer)
  if by == ARGV[3] and ARGV[7] and ARGV[7] ~= '' then
    redis.call('HSET', wait_of(wait_id), 'details', string.sub(ARGV[7], 2))
  end
  reckon(f[1])
  announce()
  done = by == ARGV[3] and 1 or 0
  if done == 1 then
    tell(ARGV[8])
  end
end
return { done, redis.call('HGETALL', wait_of(wait_id)) }
