-- Puts a run into the queue, once, and rings for it; a worker that cannot take it out does not hide it from others.
-- ARGV: run, flow.
redis.call('PUBLISH', P .. 'bell', ARGV[3])
return redis.call('ZADD', P .. 'queue', 'NX', clock(), ARGV[2])
