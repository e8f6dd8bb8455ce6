-- Returns when the next wait of a halted run is due. ARGV: after when.
local wait_id = redis.call('ZRANGEBYSCORE', P .. 'timers', ARGV[2], '+inf', 'LIMIT', 0, 1)[1]
return wait_id and redis.call('HGET', wait_of(wait_id), 'due')
