-- Returns the tags and the attributes of some runs, each as names and values, and what they say of undoing. ARGV: runs.
local found = {}
for k = 2, #ARGV do
  local f = redis.call('HMGET', row_of(ARGV[k]), 'n', 'undoing')
  local n = f[1]
  found[k - 1] = n and { redis.call('HGETALL', tags_of(n)), redis.call('HGETALL', attributes_of(n)), f[2] } or { {}, {} }
end
return found
