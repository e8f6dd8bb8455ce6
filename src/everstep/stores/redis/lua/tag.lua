-- Changes the tags of a run, as engine.query.labels.tagged says; returns what became of it.
-- ARGV: run, how many it may have, a row of the audit log, the sequence of its newest record or nothing, how many are
-- added, their names and values, names of those taken away.
local f = redis.call('HMGET', row_of(ARGV[2]), 'n', 'head')
local n = f[1]
if not n then
  return 'unknown_run'
end
if was_told(ARGV[4]) or (ARGV[5] ~= '' and f[2] ~= ARGV[5]) then
  return 'moved'
end
local found, many = {}, 0
local there = redis.call('HGETALL', tags_of(n))
for k = 1, #there, 2 do
  found[there[k]] = there[k + 1]
end
local last = 6 + 2 * tonumber(ARGV[6])
for k = last + 1, #ARGV do
  found[ARGV[k]] = nil
end
for k = 7, last, 2 do
  found[ARGV[k]] = ARGV[k + 1]
end
for _ in pairs(found) do
  many = many + 1
end
if many > tonumber(ARGV[3]) then
  return 'full'
end
redis.call('DEL', tags_of(n))
for name, value in pairs(found) do
  redis.call('HSET', tags_of(n), name, value)
end
tell(ARGV[4])
return 'tagged'
