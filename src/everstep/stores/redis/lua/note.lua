-- Appends a line to the log of what went. ARGV: line.
redis.call('RPUSH', P .. 'removals', ARGV[2])
