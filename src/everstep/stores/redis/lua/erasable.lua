-- Returns the time, and of each run its row and whether another goes on from it. ARGV: runs.
local found = {}
for k = 2, #ARGV do
  found[k - 1] = { redis.call('HGETALL', row_of(ARGV[k])), redis.call('EXISTS', P .. 'forks:' .. ARGV[k]) }
end
return { clock(), found }
