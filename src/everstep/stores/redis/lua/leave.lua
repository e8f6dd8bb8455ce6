-- Forgets a worker. ARGV: worker.
redis.call('HDEL', P .. 'workers', ARGV[2])
redis.call('ZREM', P .. 'workers:until', ARGV[2])
