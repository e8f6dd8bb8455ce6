-- Returns how many runs there are by status, and how many open waits by kind. ARGV: statuses.
local counts = {}
for k = 2, #ARGV do
  counts[k - 1] = redis.call('ZCARD', P .. 'status:' .. ARGV[k])
end
return { counts, redis.call('HGETALL', P .. 'waits:kinds') }
