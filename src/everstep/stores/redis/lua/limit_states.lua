-- Returns the keys of limits and what is kept under each.
return redis.call('HGETALL', P .. 'limits')
