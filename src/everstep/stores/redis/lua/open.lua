-- Returns the format of what lies under this prefix, after noting ours if nothing does, and the server's version.
-- ARGV: format, may create.
local found = redis.call('GET', P .. 'format')
if not found and ARGV[3] == '1' then
  redis.call('SET', P .. 'format', ARGV[2])
  found = ARGV[2]
end
return { found, redis.REDIS_VERSION_NUM or 0 }
