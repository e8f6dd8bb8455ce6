-- Keeps an artifact, and when it was put. ARGV: digest, content.
redis.call('SET', P .. 'blob:' .. ARGV[2], ARGV[3])
redis.call('ZADD', P .. 'blobs', 0, ARGV[2])
redis.call('ZADD', P .. 'blobs:touched', clock(), ARGV[2])
