-- Puts other bytes in the place of records and of what waits say, each only where those are that were read.
-- ARGV: run, how many records; of each its sequence, the old item and the new one; then of each wait its id, the
-- old details and answer, the new details and answer ('=' before an answer that there is).
local run_id, count, k = ARGV[2], tonumber(ARGV[3]), 4
local chain = P .. 'chain:' .. run_id
local begins = tonumber(redis.call('HGET', row_of(run_id), 'forked') or 0) + 1
local replaced = 0
for _ = 1, count do
  local place = tonumber(ARGV[k]) - begins
  if redis.call('LINDEX', chain, place) == ARGV[k + 1] then
    redis.call('LSET', chain, place, ARGV[k + 2])
    replaced = replaced + 1
  end
  k = k + 3
end
while k <= #ARGV do
  local key = wait_of(ARGV[k])
  local f = redis.call('HMGET', key, 'details', 'answer')
  if f[1] == ARGV[k + 1] and (f[2] and '=' .. f[2] or '') == ARGV[k + 2] then
    redis.call('HSET', key, 'details', ARGV[k + 3])
    if ARGV[k + 4] ~= '' then
      redis.call('HSET', key, 'answer', string.sub(ARGV[k + 4], 2))
    end
    replaced = replaced + 1
  end
  k = k + 5
end
return replaced
