-- Returns the newest lines of the log of what went, and the number of the first. ARGV: limit, before ('' for none).
local last = redis.call('LLEN', P .. 'removals')
if ARGV[3] ~= '' then
  last = math.min(last, tonumber(ARGV[3]) - 1)
end
local first = math.max(1, last - tonumber(ARGV[2]) + 1)
if last < first then
  return { 0, {} }
end
return { first, redis.call('LRANGE', P .. 'removals', first - 1, last - 1) }
