-- Writes something and removes it again.
redis.call('SET', P .. 'probe', 1)
redis.call('DEL', P .. 'probe')
