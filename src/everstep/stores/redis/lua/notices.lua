-- Returns notices of an index, the newest first. ARGV: index, before which number or '', how many.
local before = ARGV[3] == '' and '+inf' or '(' .. ARGV[3]
local found = {}
for k, number in ipairs(redis.call('ZREVRANGEBYSCORE', P .. 'notices' .. ARGV[2], before, '-inf', 'LIMIT', 0, ARGV[4])) do
  found[k] = redis.call('HGETALL', P .. 'notice:' .. number)
end
return found
