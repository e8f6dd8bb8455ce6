-- Returns which events the nodes of a run had, each as a path, a name and an id. ARGV: run.
local n, found = redis.call('HGET', row_of(ARGV[2]), 'n'), {}
for _, path in ipairs(n and redis.call('SMEMBERS', P .. 'had:' .. n) or {}) do
  for _, event in ipairs(redis.call('SMEMBERS', had_of(n, path))) do
    local length = string.match(event, '^(%d+):')
    local ends = #length + 1 + tonumber(length)
    found[#found + 1] = { path, string.sub(event, #length + 2, ends), string.sub(event, ends + 1) }
  end
end
return found
