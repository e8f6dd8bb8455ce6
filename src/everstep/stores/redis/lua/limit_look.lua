-- Returns the time, how often a claim with limits was made, and what is kept under some keys of limits. ARGV: keys.
local states = {}
for k = 2, #ARGV do
  states[k - 1] = redis.call('HGET', P .. 'limits', ARGV[k]) or ''
end
return { clock(), redis.call('GET', P .. 'limits:claims') or '0', states }
