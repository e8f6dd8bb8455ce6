-- Returns what is left of erased runs, those erased last first.
-- ARGV: limit, the run before which to begin, wanted flow ('=' before a name).
local newest = '+inf'
if ARGV[3] ~= '' then
  newest = redis.call('HGET', tomb_of(string.sub(ARGV[3], 2)), 'number')
  if not newest then
    return {}
  end
  newest = '(' .. newest
end
local index = ARGV[4] == '' and 'tombstones' or 'tombstones:flow:' .. string.sub(ARGV[4], 2)
local found = {}
for _, run_id in ipairs(redis.call('ZREVRANGEBYSCORE', P .. index, newest, '-inf', 'LIMIT', 0, ARGV[2])) do
  found[#found + 1] = { run_id, redis.call('HGETALL', tomb_of(run_id)) }
end
return found
