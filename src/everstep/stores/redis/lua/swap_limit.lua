-- Replaces what is kept under a key of a limit, if it still is what was read; returns whether it was.
-- ARGV: key, what was read, what is to be kept; nothing for none.
if (redis.call('HGET', P .. 'limits', ARGV[2]) or '') ~= ARGV[3] then
  return 0
end
if ARGV[4] == '' then
  redis.call('HDEL', P .. 'limits', ARGV[2])
else
  redis.call('HSET', P .. 'limits', ARGV[2], ARGV[4])
end
announce()
return 1
