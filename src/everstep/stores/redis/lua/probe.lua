-- Writes something and removes it again.
redis.call('SET', P .. 'probe', ARGV[2])
redis.call('DEL', P .. 'probe')
