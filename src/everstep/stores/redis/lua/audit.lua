-- Returns rows of the audit log with their numbers. ARGV: run ('' for all), the number behind or before which it begins
-- ('' for none), how many, and '1' for the oldest first.
local key = ARGV[2] == '' and P .. 'audit' or P .. 'audit:run:' .. ARGV[2]
local numbers
if ARGV[5] == '1' then
  numbers = redis.call('ZRANGEBYSCORE', key, '(' .. ARGV[3], '+inf', 'LIMIT', 0, ARGV[4])
else
  local newest = ARGV[3] == '' and '+inf' or '(' .. ARGV[3]
  numbers = redis.call('ZREVRANGEBYSCORE', key, newest, '-inf', 'LIMIT', 0, ARGV[4])
end
local found = {}
for k, number in ipairs(numbers) do
  found[k] = { number, redis.call('HGET', P .. 'audit:rows', number) }
end
return found
