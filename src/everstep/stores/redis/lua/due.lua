-- Returns the time and the runs of some flows that somebody should drive, the longest due first.
-- ARGV: limit, number of flows, name and hash of each, runs to be left alone.
local now, limit, flows = clock(), tonumber(ARGV[3]), tonumber(ARGV[4])
local apart, after = {}, 5 + 2 * flows
for k = after, #ARGV do
  apart[ARGV[k]] = true
end
local found = {}
for k = 0, flows - 1 do
  local due = redis.call('ZRANGEBYSCORE', due_of(ARGV[5 + 2 * k], ARGV[6 + 2 * k]), '-inf', now, 'WITHSCORES',
    'LIMIT', 0, limit + #ARGV - after + 1)
  for j = 1, #due, 2 do
    if not apart[due[j]] then
      found[#found + 1] = { due[j], tonumber(due[j + 1]) }
    end
  end
end
table.sort(found, function(one, other)
  return one[2] < other[2] or one[2] == other[2] and one[1] < other[1]
end)
local rows = {}
for k = 1, math.min(limit, #found) do
  rows[k] = { found[k][1], redis.call('HGETALL', row_of(found[k][1])) }
end
return { now, rows }
