-- Returns the row of a wait. ARGV: wait.
return redis.call('HGETALL', wait_of(ARGV[2]))
