-- Returns the tags and the attributes of some runs, each as names and values. ARGV: runs.
local found = {}
for k = 2, #ARGV do
  local n = redis.call('HGET', row_of(ARGV[k]), 'n')
  found[k - 1] = n and { redis.call('HGETALL', tags_of(n)), redis.call('HGETALL', attributes_of(n)) } or { {}, {} }
end
return found
