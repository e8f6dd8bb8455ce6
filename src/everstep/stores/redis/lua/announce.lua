-- Puts a run into the queue, once, and rings for it. ARGV: run, flow.
if redis.call('ZADD', P .. 'queue', 'NX', clock(), ARGV[2]) == 0 then
  return 0
end
redis.call('PUBLISH', P .. 'bell', ARGV[3])
return 1
