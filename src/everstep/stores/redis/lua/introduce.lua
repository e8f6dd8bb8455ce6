-- Keeps the structure of a flow; returns older ones that unfinished runs have. ARGV: flow, hash, structure.
local known = redis.call('HEXISTS', P .. 'structures', ARGV[3])
keep_structure(ARGV[3], ARGV[4])
local mine = tonumber(redis.call('ZSCORE', P .. 'structures:order', ARGV[3]))
local older = {}
for _, hash in ipairs(redis.call('HKEYS', P .. 'unfinished:' .. ARGV[2])) do
  local number = tonumber(redis.call('ZSCORE', P .. 'structures:order', hash))
  if number and number < mine then
    older[#older + 1] = { number, hash }
  end
end
table.sort(older, function(one, other)
  return one[1] < other[1]
end)
for k, found in ipairs(older) do
  older[k] = found[2]
end
if known == 0 then
  announce()
end
return older
