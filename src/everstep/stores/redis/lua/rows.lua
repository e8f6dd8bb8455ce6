-- Returns the rows of some runs. ARGV: runs.
local rows = {}
for k = 3, #ARGV do
  rows[k - 2] = redis.call('HGETALL', row_of(ARGV[k]))
end
return rows
