-- Returns the rows of some runs. ARGV: runs.
local rows = {}
for k = 2, #ARGV do
  rows[k - 1] = redis.call('HGETALL', row_of(ARGV[k]))
end
return rows
