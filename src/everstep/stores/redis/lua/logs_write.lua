-- Keeps logs of steps, each in a field of its run's hash, and removes those of attempts that are too long ago.
-- ARGV: of each log: run, field, body, the field that goes.
for i = 2, #ARGV, 4 do
    redis.call('HSET', P .. 'logs:' .. ARGV[i], ARGV[i + 1], ARGV[i + 2])
    redis.call('HDEL', P .. 'logs:' .. ARGV[i], ARGV[i + 3])
end
return 1
