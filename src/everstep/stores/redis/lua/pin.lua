-- Pins a run, or lets it go; returns whether there is such a run. ARGV: run, reason ('=' before one), the sequence
-- of its newest record or nothing, a row of the audit log.
local f = redis.call('HMGET', row_of(ARGV[2]), 'n', 'head')
local n = f[1]
if was_told(ARGV[5]) or not n or (ARGV[4] ~= '' and f[2] ~= ARGV[4]) then
  return 0
end
if ARGV[3] ~= '' then
  redis.call('HSET', row_of(ARGV[2]), 'pinned', string.sub(ARGV[3], 2))
  redis.call('ZADD', P .. 'kept', n, ARGV[2])
else
  redis.call('HDEL', row_of(ARGV[2]), 'pinned')
  redis.call('ZREM', P .. 'kept', ARGV[2])
end
tell(ARGV[5])
announce()
return 1
