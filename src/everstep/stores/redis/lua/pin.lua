-- Pins a run, or lets it go; returns whether there is such a run. ARGV: run, reason ('=' before one), a row of the
-- audit log.
local n = redis.call('HGET', row_of(ARGV[2]), 'n')
if not n then
  return 0
end
if ARGV[3] ~= '' then
  redis.call('HSET', row_of(ARGV[2]), 'pinned', string.sub(ARGV[3], 2))
  redis.call('ZADD', P .. 'kept', n, ARGV[2])
else
  redis.call('HDEL', row_of(ARGV[2]), 'pinned')
  redis.call('ZREM', P .. 'kept', ARGV[2])
end
tell(ARGV[4])
announce()
return 1
