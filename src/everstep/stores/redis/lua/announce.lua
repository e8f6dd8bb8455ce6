-- Puts a run into the queue, once, and rings for it; whoever could not take it out keeps nobody from hearing of it.
-- ARGV: run, flow.
redis.call('PUBLISH', P .. 'bell', ARGV[3])
return redis.call('ZADD', P .. 'queue', 'NX', clock(), ARGV[2])
