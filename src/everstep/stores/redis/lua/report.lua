-- Keeps what a worker says of itself for a while, and forgets those whose time is over. ARGV: worker, span, what.
local now = clock()
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', P .. 'workers:until', '-inf', now)) do
  redis.call('HDEL', P .. 'workers', gone)
end
redis.call('ZREMRANGEBYSCORE', P .. 'workers:until', '-inf', now)
redis.call('ZADD', P .. 'workers:until', whole(tonumber(now) + tonumber(ARGV[3])), ARGV[2])
redis.call('HSET', P .. 'workers', ARGV[2], now .. ' ' .. ARGV[4])
