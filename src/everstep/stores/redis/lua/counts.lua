-- Returns how many runs there are by status, and how many open waits by kind. ARGV: statuses.
local counts = {}
for k = 3, #ARGV do
  counts[k - 2] = redis.call('ZCARD', P .. 'status:' .. ARGV[k])
end
return { counts, redis.call('HGETALL', P .. 'waits:kinds') }
