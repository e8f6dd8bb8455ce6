-- Puts other bytes in the place of logs of steps, each only where those are that were read.
-- ARGV: of each log: run, field, the old body, the new one.
local replaced = 0
for i = 2, #ARGV, 4 do
    local key = P .. 'logs:' .. ARGV[i]
    if redis.call('HGET', key, ARGV[i + 1]) == ARGV[i + 2] then
        redis.call('HSET', key, ARGV[i + 1], ARGV[i + 3])
        replaced = replaced + 1
    end
end
return replaced
