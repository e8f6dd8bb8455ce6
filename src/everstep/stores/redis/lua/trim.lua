-- Puts stubs in the place of records, unless the run was trimmed, forked or pinned meanwhile.
-- ARGV: run, before, the pin and the first sequence it was decided for, stubs.
local run_id, since = ARGV[2], tonumber(ARGV[5])
local f = redis.call('HMGET', row_of(run_id), 'forked', 'trimmed', 'head', 'pinned')
local begins = tonumber(f[1] or 0) + 1
local pin = redis.call('ZRANGE', P .. 'pins:' .. run_id, 0, 0, 'WITHSCORES')[2] or ''
if not f[3] or f[4] or pin ~= ARGV[4] or math.max(tonumber(f[2] or 0), begins) ~= since then
  return 0
end
for k = 6, #ARGV do
  redis.call('LSET', P .. 'chain:' .. run_id, since - begins + k - 6, ARGV[k])
end
redis.call('ZREMRANGEBYSCORE', P .. 'keyframes:' .. run_id, '-inf', '(' .. ARGV[3])
redis.call('HSET', row_of(run_id), 'trimmed', ARGV[3])
announce()
return 1
