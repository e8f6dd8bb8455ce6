-- Returns which events the nodes of a run had, each as a path and an id. ARGV: run.
local n, found = redis.call('HGET', row_of(ARGV[2]), 'n'), {}
for _, path in ipairs(n and redis.call('SMEMBERS', P .. 'had:' .. n) or {}) do
  for _, id in ipairs(redis.call('SMEMBERS', had_of(n, path))) do
    found[#found + 1] = { path, id }
  end
end
return found
