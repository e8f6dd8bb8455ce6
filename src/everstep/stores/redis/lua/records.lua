-- Returns a run's first sequence that is meant, and its records from there. ARGV: run, first, last, from keyframe.
local f = redis.call('HMGET', row_of(ARGV[2]), 'head', 'forked')
if not f[1] then
  return { 0, {} }
end
local begins = tonumber(f[2] or 0) + 1
local first, last = math.max(tonumber(ARGV[3]), begins), math.min(tonumber(ARGV[4]), tonumber(f[1]))
if ARGV[5] == '1' then
  local key = redis.call('ZREVRANGEBYSCORE', P .. 'keyframes:' .. ARGV[2], last, '-inf', 'LIMIT', 0, 1)[1]
  first = key and tonumber(key) or begins
end
if last < first then
  return { 0, {} }
end
return { first, redis.call('LRANGE', P .. 'chain:' .. ARGV[2], first - begins, last - begins) }
